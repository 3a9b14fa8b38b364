"""Static models: subword vectors, of which a text's vector is the mean."""
