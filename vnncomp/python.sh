# Sourced by the scripts: the Python that install_tool.sh made, else $LAYERCERT_PYTHON, else the one on PATH.
_root=$(dirname "$here")
if [ -n "${LAYERCERT_PYTHON:-}" ]; then
    layercert_python=$LAYERCERT_PYTHON
elif [ -x "$_root/.venv-vnncomp/bin/python" ]; then
    layercert_python=$_root/.venv-vnncomp/bin/python
else
    layercert_python=python3
fi
