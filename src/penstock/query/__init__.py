"""One question over hot, warm and cold.

tiers     what each tier has at one moment, each row in one of them
hot       the log's tail, decoded
warm      sealed segments that the lake does not have yet
engine    DuckDB over all of it, shut off from everything else
statements    what may be asked
results   rows as people and programs want them
"""
