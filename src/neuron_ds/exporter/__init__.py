"""Metrics for Prometheus: families of the vendor's names and our own, over HTTP or in one's own registry.

This room needs the extra ``exporter`` (prometheus_client, psutil). See docs/exporter.md.
"""

from neuron_ds.exporter.collector import NeuronCollector
from neuron_ds.exporter.families import CHOICES, FAMILIES, Family
from neuron_ds.exporter.watch import Watch

__all__ = ["CHOICES", "FAMILIES", "Family", "NeuronCollector", "Watch"]
