"""The live page: frames made once and pushed to every browser, with the monitor's report and the exporter's metrics
beside them.

Importing this loads nothing; ``server.WebServer`` is where it begins.
"""
