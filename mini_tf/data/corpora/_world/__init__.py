"""The synthetic world: an invented language with gold labels, shared by the corpora that are made from it.

`lexicon` has the words, `syntax` the sentences as dependency trees, `documents` the running text with pronouns and
cues, `translation` the target language, `facts` the documents with summaries, `streams` the tasks on distance.
"""
