"""How the programs beside this ask a server of serve_llm.py. Needs nothing but Python."""
import json
import urllib.request

from together import FOLDER

# The model's folder, which is also its name.
MODEL = FOLDER / "llm"


def answer_of(port, tokens, stream=False):
    """Asks the server on a port for a number of tokens; returns its answer as a file."""
    words = {"model": str(MODEL), "messages": [{"role": "user", "content": "w10 w11 w12"}], "max_tokens": tokens, "stream": stream}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(words).encode(), {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=600)
