-- Mappers: how a supplier's XML, JSON or CSV becomes an import document; kept as they were written.

set local role bds_owner;

create table bds.mappers (
    company_id  text collate "C" not null references bds.companies (id) on delete cascade,
    name        text collate "C" not null,
    -- xml, json, csv: a source's; template: goes out only
    format      text not null,
    text        text not null,
    actor       text not null,
    created_at  timestamptz not null default clock_timestamp(),
    updated_at  timestamptz not null default clock_timestamp(),

    primary key (company_id, name),
    constraint name_fits_a_path check (name ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$'),
    constraint format_is_known check (format in ('xml', 'json', 'csv', 'template'))
);
comment on table bds.mappers is 'Mappers of a company: configurations that turn XML, JSON or CSV into import documents, and templates';

alter table bds.mappers enable row level security;
create policy own_company on bds.mappers to bds_writer, bds_reader
    using (company_id = (select current_setting('bds.company', true)));
create policy every_company on bds.mappers to bds_operator using (true);
