"""The words that every other package speaks: topics, settings, errors, clock."""

from penstock.model.clock import Clock, SystemClock
from penstock.model.settings import Durability, LogSettings
from penstock.model.topics import Topic

__all__ = ["Clock", "Durability", "LogSettings", "SystemClock", "Topic"]
