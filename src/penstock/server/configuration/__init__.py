"""What a server is told: by file, environment and flags.

In come a YAML document, environment variables and flags; out comes one frozen `Config`, whose
sections are the settings of the packages that do the work. Read in this order:

    model.fields      what a field of settings says: type, bounds, key, meaning
    config            the sections, and what a store and a lake get of them
    loading           from file, environment and flags to a `Config`, and back; the schema

Only the process that was started by people reads anything; its children are handed what it read.
"""
