"""The stores of one worker: opened, decoded for, archived, closed.

In come topics that somebody uses; out go open stores, which seal, deliver and forget by themselves
(`penstock.store`), and what is known of those that are closed.

stores          opens each with its first use, closes what is idle, makes room on a full disk
residents       which are open and in use, and what the others were like
opening         one store as the configuration says, with its archive and its part of the cap
decoding        OTLP to bundles in a process of its own (`decoder`), which may die of a message
archiving       the archive, as the configuration says
"""
