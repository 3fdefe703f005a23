"""What is where, each row once: the one map of hot, warm and cold.

Comes in: a data directory, a lake, and which table, topics and namespaces are asked for. Goes out:
segments, rows of the log and files of the lake, every message in one of them and in no two. Query,
`spark.read`, the server's snapshot and the flush take it from here.

What there is:
    segments, archive_segments, queue_segments    sealed segments, wherever they lie
    requests      messages of object storage as the bundles of a segment
    extent, holes    from where to where messages are in a directory; what nobody has any more
    adoption      whose the lake's old positions are
    cut           which tier has a message, by its offset
    look          one look at all of it; findings, what it has to say besides

The rows:
    rows          of a segment, made in one place
    hot, tails    of the log's tail, decoded; and remembered until it is sealed
    warm, pieces    of segments; and remembered
    repeats       fresh rows that an older tier has
    doubles, compared    spans that two files of the lake have; and the record of it
    moved         of segments that went to the lake meanwhile

For whom:
    table         a table at one moment, for questions
    shares        the same divided, for Spark
    fresh_rows    what the lake lacks in the memory of a batch, for the snapshot and Flight
"""
