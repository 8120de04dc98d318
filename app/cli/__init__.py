"""The `bds` command for operators.

Modules:
    __main__    the entry point
    main        runs one command: exit codes, error messages
    parser      the table of all commands: function, help, example, arguments
    commands    the functions of the commands
    accounts, imports, exports, explain, demo   the larger commands
    arguments   readers of values on the command line
    stdio       the standard streams
    tables      tables and the report of an import, as text
    progress    progress of long work
"""
