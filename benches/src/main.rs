//! Benchmark workloads.
use latchwork::prelude::*;
use std::time::Instant;

#[derive(Clone, Serialize, Deserialize)]
struct Empty {}
struct Ten;
impl Workflow for Ten {
    type Data = Empty;
    const ID: &'static str = "ten";
    fn build(&self, flow: &mut WorkflowBuilder<Empty>) {
        for i in 0..10 { flow.run(&format!("s{i}"), async |_, _| Ok(())); }
    }
}
struct Long;
impl Workflow for Long {
    type Data = Empty;
    const ID: &'static str = "long";
    fn build(&self, flow: &mut WorkflowBuilder<Empty>) {
        for i in 0..10_000 { flow.run(&format!("s{i}"), async |_, _| Ok(())); }
    }
}
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let host = WorkflowHost::builder().use_local_locking().use_local_queue().use_memory_persistence().workflow(Ten).workflow(Long).start().await?;
    for _ in 0..3 {
    let t = Instant::now();
    let mut handles = vec![];
    for _ in 0..10_000 { handles.push(host.start_workflow::<Ten>(Empty {}).await?); }
    let started = t.elapsed();
    for h in handles { h.completion().await?; }
    println!("B1 {:?} started {:?} {:.0}/s", t.elapsed(), started, 100_000.0 / t.elapsed().as_secs_f64());
    let t = Instant::now();
    host.start_workflow::<Long>(Empty {}).await?.completion().await?;
    println!("B2 {:?} {:.0}/s", t.elapsed(), 10_000.0 / t.elapsed().as_secs_f64());
    }
    Ok(())
}
