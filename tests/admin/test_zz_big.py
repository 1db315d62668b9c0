import time, pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from jobqueue.models import Job
@pytest.mark.django_db
@pytest.mark.parametrize("analyze",[False,True])
def test_big(viewer, analyze):
    with connection.cursor() as c:
        c.execute("""insert into jobqueue_job(queue,task,status,args,kwargs,options,metadata,history,worker_ids,finished_at,message)
        select 'q'||(g%5), 'tests.tasks.'||(case when g%1000=0 then 'fail' else 'add' end), case when g%5000=0 then 'ERROR' when g>1499000 then 'QUEUED' else 'SUCCESS' end,
        jsonb_build_array(repeat('x',200)),'{}','{}','{}','[]','["a"]', now(), '' from generate_series(1,1500000) g""")
        if analyze: c.execute("analyze jobqueue_job")
    for q in ("","?p=100","?status=ERROR","?status=RUNNING","?status=PAUSED","?status=QUEUED","?status=PENDING","?status=SUCCESS","?waiting=time","?waiting=children","?queue=q3","?queue=zz","?task=tests.tasks.fail","?task=gone","?status=ERROR&task=gone","?status=QUEUED&queue=zz","?q=fail","?q=12345","?q=gone.x"):
        b=time.time()
        with CaptureQueriesContext(connection) as cap:
            r=viewer.get("/admin/jobqueue/job/"+q)
        slow=max(cap.captured_queries,key=lambda x:float(x["time"]))
        print(analyze, q, r.status_code, round(time.time()-b,3), len(cap), slow["time"], slow["sql"][:0] if float(slow["time"])<0.3 else slow["sql"][:60]+"..."+slow["sql"][-250:])
