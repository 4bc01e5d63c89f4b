from kvpool._token_arrays cimport NO_TOKENS, kind_of, packed, view_of
