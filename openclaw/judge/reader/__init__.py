"""Where the judge's rules know no phrase, a language model that is served anyway reads what a person says."""
