//! A web service: the host lives in the state of an axum application, whose handlers start workflows, publish events and look at instances. It serves on a free
//! port, is called as a client would, and stops: first the server, then the host.
//!
//! `cargo run --example web_service`

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use latchwork::prelude::*;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    id: String,
    lines: u32,
    paid: bool,
    shipped: bool,
}

struct Fulfil;

impl Workflow for Fulfil {
    type Data = Order;
    const ID: &'static str = "fulfil";

    fn build(&self, flow: &mut WorkflowBuilder<Order>) {
        flow.wait_for("paid", |order| order.id.clone()).output(|(), order| order.paid = true);
        flow.run("ship", async |_, _| Ok(())).output(|(), order| order.shipped = true);
    }
}

/// What a handler fails with: a status by what another try could mend, and the reason.
struct Failure(StatusCode, String);

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        let status = if error.is_retryable() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::BAD_REQUEST };
        Self(status, error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

/// A client that does not know whether its request arrived sends it again: with the same business key it starts nothing more.
async fn start(
    State(host): State<WorkflowHost>,
    Path(id): Path<String>,
    Json(lines): Json<u32>,
) -> Result<(StatusCode, String), Failure> {
    let order = Order { id: id.clone(), lines, paid: false, shipped: false };
    let order = host.start_workflow::<Fulfil>(order).business_key(id).await?;
    let status = if order.was_created() { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, order.id().to_string()))
}

async fn pay(State(host): State<WorkflowHost>, Path(id): Path<String>) -> Result<StatusCode, Failure> {
    host.publish_event("paid", &id, ()).await?;
    Ok(StatusCode::ACCEPTED)
}

async fn show(State(host): State<WorkflowHost>, Path(id): Path<String>) -> Result<Json<Value>, Failure> {
    let found = host.find_by_key::<Fulfil>(&id).await?;
    let order = found.ok_or_else(|| Failure(StatusCode::NOT_FOUND, format!("there is no order {id}")))?;
    Ok(Json(json!({ "status": order.status().await?.as_str(), "order": order.data().await? })))
}

async fn health(State(host): State<WorkflowHost>) -> (StatusCode, Json<Vec<String>>) {
    let report = host.health_report().await;
    let status = if report.is_healthy() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(report.concerns()))
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let host = WorkflowHost::builder()
        .use_local_locking()
        .use_local_queue()
        .use_sqlite_persistence(folder.path().join("orders.db").to_string_lossy())
        .workflow(Fulfil)
        .start()
        .await?;
    let service = Router::new()
        .route("/orders/{id}", post(start).get(show))
        .route("/orders/{id}/paid", post(pay))
        .route("/health", get(health))
        .with_state(host.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(axum::serve(listener, service).with_graceful_shutdown(async { drop(stopped.await) }).into_future());

    ensure!(call(address, "GET", "/health", "").await?.0 == 200);
    ensure!(call(address, "POST", "/orders/A-1", "3").await?.0 == 201);
    ensure!(call(address, "POST", "/orders/A-1", "3").await?.0 == 200, "repeated, and not started again");
    ensure!(call(address, "GET", "/orders/A-2", "").await?.0 == 404);
    ensure!(call(address, "POST", "/orders/A-1/paid", "").await?.0 == 202);
    let shown = async {
        loop {
            let (_, body) = call(address, "GET", "/orders/A-1", "").await?;
            if body.contains("\"complete\"") {
                return anyhow::Ok(body);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let shown = tokio::time::timeout(Duration::from_secs(30), shown).await.context("not complete in time")??;
    println!("{shown}");
    ensure!(serde_json::from_str::<Value>(&shown)?["order"]["shipped"] == json!(true));

    // No new requests, then no new work.
    drop(stop);
    server.await??;
    let report = host.stop().await?;
    ensure!(report.unfinished.is_empty());
    Ok(())
}

/// A client in a few lines: the status and the body of one request.
async fn call(address: SocketAddr, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let head = "Host: localhost\r\nConnection: close\r\nContent-Type: application/json";
    let request = format!("{method} {path} HTTP/1.1\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    let status = head.split_whitespace().nth(1).context("no status")?.parse()?;
    println!("{method} {path}: {status}");
    Ok((status, body.to_owned()))
}
