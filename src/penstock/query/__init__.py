"""One question over hot, warm and cold.

Comes in: a statement, and who asks. Goes out: rows, each once, or an error that names what is
missing.

The statement:
    tree          as DuckDB parses it
    statements    what may be asked
    functions     what may be called in it, by name
    columns       which columns it can need
    conditions    which times and traces it can want
    dialect       functions by the names that ClickHouse has for them

The rows, which `penstock.tiers` finds:
    cold, files, shapes, declared    files of the lake as SQL, and whose rows
    pruning       which files and rows cannot be in the answer

The answer:
    database      DuckDB, shut off from everything but the files that it was made for
    relations     the tables and views that a statement names
    engine        asks, and asks again without files that cannot be read
    unreadable, deadline    which files those are; how long it may take
    results       rows as people and programs want them
"""
