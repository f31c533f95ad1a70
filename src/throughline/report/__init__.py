"""Summaries -> what people read: tables, plots and one page.

analysis/ computes: records -> summaries -> what they say. It draws and formats nothing. render/ shows it. topics.py is
the shape that every topic of the report has. This room knows records, study and the workloads' declarations; it names
no workload, and takes its units and figures from what the records declare.
"""
