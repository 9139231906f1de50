"""The corpora that come along. A file is one; the recipe's word for it has a hyphen where the file's name has an underscore."""
