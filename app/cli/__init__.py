"""The `bds` command for operators.

Modules:
    __main__    the entry point
    main        runs one command: exit codes, error messages
    parser      the table of all commands: function, help, example, arguments
    completion  the script with which a shell completes commands, from the same table
    commands    the functions of the commands
    companies, feeds, hooks, mappers, places, nodes   the commands of a group
    versions    differences and names of versions
    audit       who has changed what is administered
    accounts, imports, exports, follow, explain, demo, doctor   what the larger commands do
    heads       heads of the seals, to be kept elsewhere and compared
    assistant   `bds mcp`, with its tools (tools)
    remote      imports, exports and changes of a service far away (--url)
    arguments   readers of values on the command line
    stdio       the standard streams
    tables      tables and the report of an import, as text
    progress    progress of long work
"""
