"""Renders the chart in a folder with Helm's own library.

Each line is values as JSON; the reply is the manifests, or the reason why the values are refused."""

import json
import sys

import helm_python

chart = helm_python.Chart.load(sys.argv[1])
for line in sys.stdin:
    try:
        files = chart.render(json.loads(line), name="gpushare", namespace="gpushare")
        said = {"manifests": "".join(files.values())}
    except helm_python.HelmValuesError as error:
        said = {"refused": str(error)}
    print(json.dumps(said), flush=True)
