-- Registers the nine business tables of the service, as a DBA registers others.

select bds.register('data.units');
select bds.register('data.categories');
select bds.register('data.products');
select bds.register('data.product_variants', parent => 'product_id', collection => 'variants');
select bds.register('data.customers');
select bds.register('data.orders');
select bds.register('data.order_items', parent => 'order_id', collection => 'items');
select bds.register('data.invoices');
select bds.register('data.invoice_items', parent => 'invoice_id', collection => 'items');
