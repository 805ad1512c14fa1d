export PYTHONPATH=$PWD/src PYTHONUNBUFFERED=1
P=/opt/torch/.venv/bin/python; G="$P -m gpuready"
$P tools/compile_catalog.py | tail -1
$G check transformers --python /opt/torch/.venv; echo "exit $?"
$G check transformers --python /opt/torch/.venv --import --json > $OUT/check-import.json; echo "exit $?"
( time $G prove transformers --python /opt/torch/.venv --json > $OUT/prove.json ) 2>&1 | grep real; $P -c "import json;d=json.load(open('$OUT/prove.json'));print(d.get('verdict'), d.get('exit'))"
$G prove extension-jit --python /opt/torch/.venv --json > $OUT/extension.json; echo "exit $?"; $P -c "import json;d=json.load(open('$OUT/extension.json'));print(d.get('verdict'))"
cat > /tmp/t.py <<'PY'
import os,subprocess,sys,time,statistics as st
P="/opt/torch/.venv/bin/python"
rows={"pass":[P,"-I","-c","pass"],"check":[P,"-m","gpuready","check","transformers","-q"],"check env":[P,"-m","gpuready","check","transformers","-q","--python","/opt/torch/.venv"],"collect_env":[P,"-m","torch.utils.collect_env"]}
got={k:([],[]) for k in rows}
for i in range(9):
    for k,c in rows.items():
        if k=="collect_env" and i>2: continue
        e=dict(os.environ)
        if k=="check": e["PATH"]="/usr/bin:/bin"
        a=os.times(); t=time.perf_counter(); subprocess.run(c,stdout=-3,stderr=-3,env=e); w=time.perf_counter()-t; b=os.times()
        got[k][0].append(w); got[k][1].append(b.children_user+b.children_system-a.children_user-a.children_system)
p=st.median(got["pass"][0]); pc=st.median(got["pass"][1])
for k,(w,c) in got.items(): print(k, "wall %.3f (%.1fx) cpu %.3f (%.1fx)"%(st.median(w),st.median(w)/p,st.median(c),st.median(c)/pc))
PY
$P /tmp/t.py
$P benchmarks/log_speed.py --mib 1000 --runs 2 -o $OUT/log_speed.json 2>&1 | tail -15
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
