"""KV-cache bookkeeping of LLM serving engines: page allocators and token containers."""
