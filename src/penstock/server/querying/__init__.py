"""Questions to the server: who asks next, which processes answer, and the fresh rows they read.

In come SQL, trace ids and calls for a snapshot over HTTP; out go rows, whole or as an error.

api             what is asked, over HTTP
queries         whose turn it is, and which process is asked; one that takes too much is ended
worker          that process: `penstock.query` in a shut engine, with limits
json_rows       rows as JSON
snapshot        hot rows as a Parquet file; `fresh_rows`: hot and warm ones as a stream
"""
