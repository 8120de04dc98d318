-- Polling by updatedAt reads a page from an index: the entities that had none get it.  bds.register makes it for those to come.

set local role bds_owner;

create index on data.units (company_id, updated_at);
create index on data.categories (company_id, updated_at);
create index on data.product_variants (company_id, updated_at);
create index on data.order_items (company_id, updated_at);
create index on data.invoice_items (company_id, updated_at);
