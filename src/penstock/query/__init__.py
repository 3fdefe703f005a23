"""One question over hot, warm and cold.

The statement:
    tree          as DuckDB parses it
    statements    what may be asked
    functions     what may be called in it, by name
    columns       which columns it can need
    conditions    which times and traces it can want
    dialect       functions by the names that ClickHouse has for them

The tiers:
    tiers         what each has at one moment, each row in one of them
    hot, tails    the log's tail, decoded, from its files or a server that runs; and remembered
    opening, warm, segments, pieces    sealed segments, decoded as far as needed, and remembered
    cold, files, pruning    files of the lake: which of them, and whose rows
    bloom, filters    which files may have a trace

Each row once:
    repeats       fresh rows that an older tier has
    doubles       spans that are in two files of the lake

The answer:
    database      DuckDB, shut off from everything but the files that it was made for
    relations     the tables and views that a statement names
    engine        asks, and asks again without files that cannot be read
    unreadable, deadline    which files those are; how long it may take
    results       rows as people and programs want them

For others:
    shares        a table over all tiers in shares, as Spark reads it
"""
