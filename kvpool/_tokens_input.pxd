from kvpool._token_cells cimport code_of, packed_tokens
