-- ...

create function bds_impl.is_reserved(word text)
    returns boolean
    language sql
    immutable
    return word = any (array[
        'api', 'auth', 'batch', 'changes', 'company', 'deliveries', 'errors', 'export', 'healthz', 'hooks', 'import', 'imports', 'keys',
        'login', 'logout', 'mappers', 'metadata', 'metrics', 'odata', 'preview', 'readyz', 'retry', 'session', 'static', 'tenant', 'test'
    ]);
comment on function bds_impl.is_reserved(text) is 'Whether paths of the service use the word, so that no company or entity may';

create or replace function bds.api_time(at timestamptz)
    returns text
    language sql
    immutable
    return to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
comment on function bds.api_time(timestamptz) is 'A time as every API writes it: 2026-11-20T08:15:30.123456Z';
