-- Words and times that several folders and the service share.

create function bds_impl.is_reserved(word text)
    returns boolean
    language sql
    immutable
    return word = any (array[
        'api', 'audit', 'auth', 'batch', 'changes', 'changesets', 'company', 'deliveries', 'diff', 'errors', 'export', 'healthz',
        'hooks', 'import', 'imports', 'keys', 'login', 'logout', 'mappers', 'metadata', 'metrics', 'odata', 'preview', 'readyz',
        'retry', 'revert', 'session', 'static', 'tenant', 'test', 'versions'
    ]);
comment on function bds_impl.is_reserved(text) is
    'Whether URLs of the service contain the word: no company or entity may have it as its name';

create or replace function bds_service.api_time(at timestamptz)
    returns text
    language sql
    immutable
    return to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
comment on function bds_service.api_time(timestamptz) is 'A time in the format of every API: 2026-11-20T08:15:30.123456Z';
