"""Turn summaries into what people read: tables, plots and one page.

topics/ has one file for each topic, from records to figures to tables, plots and sentences; topic.py says what a topic
is. analysis/ computes what several topics need. It draws and formats nothing. render/ draws and gathers the page. This
package knows records, study and the workloads' declarations. It names no workload: it takes units and figures from what
the records declare.
"""
