"""What is where, each row once: the one map of hot, warm and cold.

Comes in: a data directory, a lake, and which table, topics and namespaces are asked for. Goes out:
segments, rows of the log and files of the lake, every message in one of them and in no two. Query,
`spark.read`, the server's snapshot and the flush take it from here.

    segments      what there is to list: sealed segments of a directory, a queue, an archive
    extent, holes    from where to where messages are in a directory; what nobody has any more
    adoption      whose the lake's old positions are
    cut           which tier has a message, by its offset
    hot, tails    the log's tail as rows
    warm          a segment as rows
    pieces        rows that were made, remembered
    look          the tiers of a table at one moment
    fresh_rows    the same in the memory of a batch
    moved         segments that went to the lake meanwhile
    findings      what a look has to say besides rows
"""
