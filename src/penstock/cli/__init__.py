"""The command `penstock`: where the packages are put together.

Arguments come in; text for people or JSON goes out, an exit code, and one sentence on stderr where
something is wrong. A module is a command, and imports what it needs when it is called. To read:

    app, common           what holds for all commands: errors, exit codes, options, tables, JSON
    object_stores         archives and queues as a command line names them
    files, explain_*      every file that Penstock writes, recognised once, explained by `inspect`
    fsck_places           what `fsck` finds, each place with how it is verified and repaired
    pipeline, *_jobs      Spark for the time of a command
"""

from penstock.cli.app import main

__all__ = ["main"]
