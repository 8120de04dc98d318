-- The registry: entities, fields and navigations, as bds.register found them in the tables.

create table bds.entities (
    name               text collate "C" primary key,
    ordinal            bigint not null unique generated always as identity,
    singular           text not null,
    table_name         regclass not null unique,
    -- only for a child entity: the navigation to its parent, and the name of its rows inside the parent
    parent_navigation  text,
    collection         text,
    parent_since       timestamptz,
    rewritten_at       timestamptz,

    constraint entity_name_is_camel_case check (name ~ '^[a-z][A-Za-z0-9]{0,62}$'),
    constraint child_has_navigation_and_collection check ((parent_navigation is null) = (collection is null))
);
comment on table bds.entities is 'Entities of the API, each a registered table (see bds.register)';
comment on column bds.entities.name is 'The API name, such as orderItems';
comment on column bds.entities.ordinal is 'Order of registration, in which entities are listed';
comment on column bds.entities.singular is 'The name of one row, such as orderItem: the name of its type in $metadata';
comment on column bds.entities.table_name is 'The table';
comment on column bds.entities.parent_navigation is 'For a child entity the navigation to its parent';
comment on column bds.entities.collection is 'For a child entity the name of its rows inside the parent';
comment on column bds.entities.parent_since is
    'For a child entity since when each change of its rows is also logged as a change of this parent''s row; -infinity: from its '
    'first row on';
comment on column bds.entities.rewritten_at is
    'When it was registered after ALTER TABLE had rewritten the table, which may have changed values unseen by the triggers; '
    'null: never';

create table bds.fields (
    entity       text collate "C" not null references bds.entities (name) on delete cascade,
    name         text collate "C" not null,
    ordinal      int not null,
    column_name  name not null,
    type         text not null,
    stored       text not null,
    "precision"  int,
    scale        int,
    max_length   int,
    allowed      text[],
    required     boolean not null,
    has_default  boolean not null,
    generated    boolean not null,
    is_unique    boolean not null,
    reference    text,

    primary key (entity, name),
    unique (entity, column_name)
);
comment on table bds.fields is 'Fields of the entities, as bds.register found them in the tables';
comment on column bds.fields.entity is 'The entity';
comment on column bds.fields.name is 'The API name, such as taxNumber';
comment on column bds.fields.ordinal is 'The column''s number in the table';
comment on column bds.fields.column_name is 'The column';
comment on column bds.fields.type is 'The type of the field, as PostgreSQL names it internally: text, int8, numeric ...';
comment on column bds.fields.stored is 'The type of the column, as bds_impl.types names it: bpchar or enum where the field is text';
comment on column bds.fields."precision" is 'Digits of a numeric; null: unlimited';
comment on column bds.fields.scale is 'Digits of a numeric after the point; null: unlimited';
comment on column bds.fields.max_length is 'Longest text, in characters; null: unlimited';
comment on column bds.fields.allowed is 'The values of an enum, in their order; null for other types';
comment on column bds.fields.required is 'Whether the column is not null';
comment on column bds.fields.has_default is 'Whether the column has a default';
comment on column bds.fields.generated is 'Whether the column is computed by the database';
comment on column bds.fields.is_unique is 'Unique within the company, and therefore a kind of lookup';
comment on column bds.fields.reference is 'The navigation that the column is the foreign key of; null if it is a plain field';

-- The change log keeps values under the names that columns had: this is what those names mean now.
create table bds.column_history (
    entity       text collate "C" not null references bds.entities (name) on delete cascade,
    ordinal      numeric not null,
    since        timestamptz not null,
    until        timestamptz not null default 'infinity',
    column_name  name not null,
    type         text not null,
    expression   text not null default '',
    is_lost      boolean not null default false,

    primary key (entity, ordinal, since),
    constraint only_a_dropped_column_is_lost check (not is_lost or until < 'infinity')
);
comment on table bds.column_history is
    'Each name and type that a column of an entity''s table has had, as bds.register found them. The history of an entity begins '
    'with its first row here';
comment on column bds.column_history.entity is 'The entity''s API name';
comment on column bds.column_history.ordinal is
    'The number of the column (pg_attribute.attnum), which a rename keeps; a fraction for a dropped column, after a restore';
comment on column bds.column_history.since is 'When it was registered so; -infinity: from the table''s first row on';
comment on column bds.column_history.until is
    'When it was registered as renamed, dropped, of another type or computed in another way; infinity: it is like that now';
comment on column bds.column_history.column_name is 'The name of the column in the table';
comment on column bds.column_history.type is 'Its type, such as numeric(19,4)';
comment on column bds.column_history.expression is 'The expression of a generated column; empty for others';
comment on column bds.column_history.is_lost is
    'The column was dropped by other means than bds.drop_column: values that no change record has are lost';

create table bds.generated (
    entity       text collate "C" not null references bds.entities (name) on delete cascade,
    part         text collate "C" not null,
    fingerprint  text not null,
    objects      jsonb not null,

    primary key (entity, part)
);
comment on table bds.generated is 'What bds.register has generated for each entity: bds migrate generates only what differs';
comment on column bds.generated.entity is 'The entity''s API name';
comment on column bds.generated.part is 'functions, views, or table (its policies, checks, index and triggers)';
comment on column bds.generated.fingerprint is 'A hash of the statements';
comment on column bds.generated.objects is
    'The objects of the part with their definitions, as the catalog had them afterwards: bds.problems lists what differs';

create table bds.navigations (
    entity    text collate "C" not null references bds.entities (name) on delete cascade,
    name      text collate "C" not null,
    ordinal   bigint not null generated always as identity,
    target    text collate "C" not null references bds.entities (name) on delete cascade,
    many      boolean not null,
    -- the foreign key's field: in this entity for a navigation to one row, in the target for one to many rows
    field     text not null,
    partner   text not null,
    child     boolean not null,
    required  boolean not null,

    primary key (entity, name)
);
comment on table bds.navigations is
    'Navigations from rows of one entity to rows of another, which bds.register derives from foreign keys';
comment on column bds.navigations.entity is 'The entity that the navigation begins at';
comment on column bds.navigations.name is 'The API name, such as category or items';
comment on column bds.navigations.ordinal is 'Order in which navigations are listed';
comment on column bds.navigations.target is 'The entity that it leads to';
comment on column bds.navigations.many is 'Whether it leads to many rows';
comment on column bds.navigations.field is
    'The field of the foreign key: of this entity if it leads to one row, else of the target';
comment on column bds.navigations.partner is 'The navigation back';
comment on column bds.navigations.child is 'Whether one side is content of the other';
comment on column bds.navigations.required is 'Whether it always leads to a row';
