"""A server for tests that stop it: a search prints "in" and returns when a line comes on standard input.

Its arguments: settings as JSON, and how many files it may have open."""

import json
import resource
import sys
from types import SimpleNamespace

from interlingua.data.records import Passage
from interlingua.index import Hit
from interlingua.serving.app import create_app
from interlingua.serving.server import bind, run
from interlingua.serving.service import ServeSettings


class HeldIndex:
    path = ""
    fields = ()
    encoder = None

    def __init__(self):
        self.languages = {"en": 1}

    def search_many(self, texts, **options):
        if texts != ["interlingua"]:  # the server's own first question
            print("in", flush=True)
            sys.stdin.readline()
        return [[Hit(Passage("a", "text", lang="en"), 1.0, {})] for _ in texts]

    def __len__(self):
        return 1

    def refresh(self):
        pass

    def info(self):
        return SimpleNamespace(model="held")


if __name__ == "__main__":
    if sys.argv[2:]:  # files that it may have open
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)
    with bind("127.0.0.1", 0) as listener:
        settings = ServeSettings(**json.loads(sys.argv[1]) if sys.argv[1:] else {})
        run(create_app(HeldIndex(), settings), listener, settings)
