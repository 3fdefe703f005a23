"""The cold flush: from sealed segments to committed tables.

stream      the streaming query, from claiming the lake to its end
batch       one batch: plan, write, commit, acknowledge
task        in Spark's tasks: segments become Parquet
identity, hashing, window, recent, rewrite    what is sent again is not written again
settings, progress, ending
"""
