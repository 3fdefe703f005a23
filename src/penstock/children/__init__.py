"""Processes that a process starts, asks, watches, replaces and ends: the one way to have a child.

In comes a module that is run with `python -m` and lists of bytes to ask it; out come its answers,
or that it died, was silent, or took too much memory. None outlives its parent.

frames      what goes over the pipes, both ways
answering   the child's side: its first steps, the questions, the answers
asking      `Child`: does nothing unless asked, one question at a time, by any thread
pool        `Pool`: several of these for an event loop, kept for the next question
guarding    `Guarded`: runs by itself and is asked in passing; started again whenever it ends
"""
