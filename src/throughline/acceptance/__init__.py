"""The verdict on a fleet of equal nodes: who is slow, what may explain it, and is it the machine or the program?

From the records of an acceptance (study/acceptance.py) to results/acceptance.json (records/acceptance.py). outliers.py
decides what is slow. The page is in report/render/acceptance.py.
"""
