"""Google's own CEL: each line is an expression and its variables as JSON; the reply is its value, or the error."""

import json
import sys

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional

for line in sys.stdin:
    asked = json.loads(line)
    names = {name: cel.Type.DYN for name in asked["data"]}
    try:
        env = cel.NewEnv(variables=names, extensions=[ext_optional.ExtOptional()])
        value = env.compile(asked["expression"]).eval(data=asked["data"])
        what = "error" if str(value.type()) == "ERROR" else "value"
        said = {what: value.plain_value()}
    except Exception as error:
        said = {"error": str(error)}
    print(json.dumps(said), flush=True)
