"""The packages that people already have, as they are published, against a server at a real port."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from interlingua.serving.app import create_app
from interlingua.serving.schemas import MAX_INPUTS
from interlingua.serving.server import Server, address, bind
from interlingua.serving.service import ServeSettings

QUERY, KEY = "who wrote the book?", "a-token-for-reading"


@pytest.fixture
def url(index: Any) -> Iterator[str]:
    """A server with a token and an alias; its model computes 16 texts at once."""
    settings = ServeSettings(token="w", read_token=KEY, delay=0.0, max_batch=16, aliases=("text-embedding-3-small",))
    with bind("127.0.0.1", 0) as listener:
        server = Server(create_app(index, settings), listener, settings)
        thread = threading.Thread(target=server.run)
        thread.start()
        yield address(listener)
        server.should_exit = True
        thread.join()


@pytest.fixture
def openai(url: str) -> Iterator[Any]:
    with pytest.importorskip("openai").OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.mark.slow
def test_openai_lists_the_models_and_their_names_all_work(openai: Any, sentences: list[str]) -> None:
    assert [model.id for model in openai.models.list()] == ["tiny", "text-embedding-3-small"]
    assert openai.models.retrieve("tiny").owned_by == "interlingua"
    given = [openai.embeddings.create(model=name, input=sentences[0]) for name in ("tiny", "text-embedding-3-small")]
    assert given[0].data[0].embedding == given[1].data[0].embedding
    assert given[0].usage.prompt_tokens > 3
    other = pytest.importorskip("openai").NotFoundError
    with pytest.raises(other, match="has only 'tiny'"):
        openai.embeddings.create(model="gpt", input="a")
    with pytest.raises(other, match="no model of this name"):
        openai.models.retrieve("gpt")


def test_openai_gets_the_vectors_of_the_model(openai: Any, index: Any, sentences: list[str]) -> None:
    expected = index.encoder.encode_document(sentences)
    for options in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
        found = openai.embeddings.create(model="tiny", input=sentences, **options)
        vectors = [one.embedding for one in found.data]
        if isinstance(vectors[0], str):  # asked for by name it is left to the caller
            import base64

            vectors = [np.frombuffer(base64.b64decode(one), dtype="<f4") for one in vectors]
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    few = openai.embeddings.create(model="tiny", input=sentences, dimensions=4)
    cut = expected[:, :4] / np.linalg.norm(expected[:, :4], axis=1, keepdims=True)
    np.testing.assert_allclose([one.embedding for one in few.data], cut, atol=1e-5)


@pytest.mark.slow
def test_openai_sends_as_many_texts_as_their_api_takes(openai: Any, sentences: list[str]) -> None:
    texts = [f"{sentences[place % 13]} {place}" for place in range(MAX_INPUTS)]
    found = openai.embeddings.create(model="tiny", input=texts)
    assert [one.index for one in found.data] == list(range(2_048))
    for place in (0, 16, 2_047):  # each with the vector of its own text, in whatever part of the request it was
        alone = openai.embeddings.create(model="tiny", input=texts[place])
        np.testing.assert_allclose(found.data[place].embedding, alone.data[0].embedding, atol=1e-5)
    bad = pytest.importorskip("openai")
    with pytest.raises(bad.UnprocessableEntityError, match="at most 2048"):
        openai.embeddings.create(model="tiny", input=["a"] * (MAX_INPUTS + 1))
    with pytest.raises(bad.UnprocessableEntityError, match=r"text 20 of 40: 180,000 characters"):
        openai.embeddings.create(model="tiny", input=["a"] * 19 + ["\ufdfa" * 10_000] + ["a"] * 20)


def test_openai_is_told_that_token_ids_cannot_be_read(openai: Any, url: str) -> None:
    bad = pytest.importorskip("openai")
    for ids in ([1, 2, 3], [[1, 2], [3]]):
        with pytest.raises(bad.BadRequestError, match="send text"):
            openai.embeddings.create(model="tiny", input=ids)
    with pytest.raises(bad.AuthenticationError), bad.OpenAI(base_url=f"{url}/v1", api_key="no") as client:
        client.models.list()


@pytest.mark.slow
def test_langchain_embeds_documents_and_questions(url: str, index: Any, sentences: list[str]) -> None:
    langchain = pytest.importorskip("langchain_openai")
    client = langchain.OpenAIEmbeddings(
        base_url=f"{url}/v1", api_key=KEY, model="tiny", check_embedding_ctx_length=False, max_retries=0
    )
    texts = [f"{sentences[place % 13]} {place}" for place in range(300)]
    np.testing.assert_allclose(client.embed_documents(texts), index.encoder.encode_document(texts), atol=1e-5)
    assert len(client.embed_query(QUERY)) == 16


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "version"), [("Client", "1"), ("ClientV2", "2")])
def test_cohere_reranks(url: str, index: Any, sentences: list[str], kind: str, version: str) -> None:
    cohere = pytest.importorskip("cohere")
    client = getattr(cohere, kind)(api_key=KEY, base_url=url)
    documents = [f"{sentences[place % 13]} {place}" for place in range(40)]
    found = client.rerank(model="tiny", query=QUERY, documents=documents, top_n=5)
    unit = [
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        for vectors in (index.encoder.encode_document(documents), index.encoder.encode_query([QUERY]))
    ]
    scores = (unit[0] @ unit[1].T)[:, 0]
    assert [one.index for one in found.results] == np.argsort(-scores, kind="stable")[:5].tolist()
    np.testing.assert_allclose([one.relevance_score for one in found.results], np.sort(scores)[:-6:-1], atol=1e-5)
    assert found.id
    assert found.meta.api_version.version == version
    best = client.rerank(model="text-embedding-3-small", query=QUERY, documents=documents).results
    assert sorted(one.index for one in best) == list(range(40))
    with pytest.raises(cohere.errors.NotFoundError, match="has only 'tiny'"):
        client.rerank(model="rerank-v3.5", query=QUERY, documents=documents)
