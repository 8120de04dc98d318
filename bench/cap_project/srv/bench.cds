// The tables of the benchmark as CAP sees them: views of one company, made by bench/cap.py.

@requires: 'any'
service bench {
  @readonly @cds.persistence.exists
  entity products {
    key id : Int64;
    code : String;
    name : String;
    description : String;
    barcode : String;
    price : Decimal;
    active : Boolean;
    categoryId : Int64;
    unitId : Int64;
    updatedAt : Timestamp;
  }

  @readonly @cds.persistence.exists
  entity invoices {
    key id : Int64;
    code : String;
    items : Association to many invoiceItems on items.invoiceId = id;
  }

  @readonly @cds.persistence.exists
  entity invoiceItems {
    key id : Int64;
    description : String;
    quantity : Decimal;
    price : Decimal;
    invoiceId : Int64;
    productId : Int64;
    updatedAt : Timestamp;
  }
}
