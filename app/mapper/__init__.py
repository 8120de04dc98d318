"""Mappers turn a supplier's XML, JSON, CSV or Excel into an import document, and stored rows back into the supplier's format.

    text of a mapper    language/parse.py (grammars/mapper.lark) -> language/check.py -> language/tree.py: Mapper
    source to document  document.py: SourceConverter passes bytes to a reader from sources/open.py;
                        sources/{xml,json,csv,excel}_source.py find the elements at each block's path
                        (workbook/ reads the rows of a workbook in a child process);
                        sources/base.py: RecordMaker evaluates the fields (language/expressions.py) and makes records;
                        document.py encodes them as an import document, which app/feed imports
    rows to source      reverse/open.py picks a writer; reverse/plan.py: ReverseBlock turns a record into path values,
                        found by reverse/solve.py; reverse/{xml,json,csv}_writer.py write them;
                        reverse/proof.py reads them again and compares
    exported file       exported.py makes the mapper that reads what an export wrote (its XML: sources/exported_xml.py)

store.py loads and stores mappers by company and name.
"""
