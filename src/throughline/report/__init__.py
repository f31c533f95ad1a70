"""Turn summaries into what people read: tables, plots and one page.

analysis/ turns records into summaries, and summaries into what the report says. It draws and formats nothing. render/
shows the results. topics.py defines the shape of a topic of the report. This package knows records, study and the
workloads' declarations. It names no workload: it takes units and figures from what the records declare.
"""
