//! The servers that tests use. A backend that has one adds it to [`all`]; what is not listed there is not started.

use std::env;

use anyhow::Result;
use clap::Subcommand;

/// What a developer can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub(crate) enum ServiceAction {
    /// Start every server that can be started here.
    Up,
    /// Stop what `up` started.
    Down,
    /// Show what runs, and what environment variables name.
    Status,
}

/// Variables that name a server to test against begin so.
pub(crate) const VARIABLE_PREFIX: &str = "LATCHWORK_TEST_";

/// A server that tests can be run against.
pub(crate) trait Service {
    /// Its name as a reader knows it, such as "SQL Server".
    fn name(&self) -> &str;

    /// The environment variable that names one which runs already, such as `LATCHWORK_TEST_SQLSERVER`.
    fn variable(&self) -> &str;

    /// Starts it, when this machine can, and returns the value for its variable.
    fn up(&self) -> Result<String>;

    /// Stops what [`Service::up`] started; one that does not run is no error.
    fn down(&self) -> Result<()>;

    /// The value for its variable when it runs, started by [`Service::up`].
    fn running(&self) -> Result<Option<String>>;
}

/// The servers of this version: none, its backends are all embedded.
pub(crate) fn all() -> Vec<Box<dyn Service>> {
    Vec::new()
}

/// Carries out one action and prints a line for each server.
pub(crate) fn run(action: &ServiceAction, services: &[Box<dyn Service>]) -> Result<()> {
    if services.is_empty() {
        println!("No backend of this version needs a server: there is nothing to start, stop or show.");
        return Ok(());
    }
    for service in services {
        println!("{}: {}", service.name(), carry_out(action, service.as_ref())?);
    }
    Ok(())
}

fn carry_out(action: &ServiceAction, service: &dyn Service) -> Result<String> {
    Ok(match action {
        ServiceAction::Up => format!("runs, {}={}", service.variable(), service.up()?),
        ServiceAction::Down => {
            service.down()?;
            String::from("stopped")
        }
        ServiceAction::Status => match (env::var(service.variable()), service.running()?) {
            (Ok(named), _) => format!("{} names {named}", service.variable()),
            (Err(_), Some(started)) => format!("runs, {}={started}", service.variable()),
            (Err(_), None) => format!("does not run, and {} is not set", service.variable()),
        },
    })
}

/// The environment for the tests, and a line for whatever they will not be run against.
pub(crate) fn for_tests(services: &[Box<dyn Service>]) -> Result<TestServices> {
    let mut found = TestServices::default();
    for service in services {
        if env::var_os(service.variable()).is_some() {
            continue;
        }
        match service.running()? {
            Some(value) => found.environment.push((service.variable().to_owned(), value)),
            None => found.notes.push(format!("skipped: {} tests ({} is not set)", service.name(), service.variable())),
        }
    }
    if services.is_empty() {
        found.notes.push(String::from("No test of this version needs a network service; none is skipped for want of one."));
    }
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with(VARIABLE_PREFIX) && !services.iter().any(|service| service.variable() == name) {
            found.notes.push(format!("{name} is set, but no test of this version reads it."));
        }
    }
    Ok(found)
}

/// What the tests are told of the servers, and what the reader is.
#[derive(Debug, Default)]
pub(crate) struct TestServices {
    /// Variables to set for the tests.
    pub(crate) environment: Vec<(String, String)>,
    /// Lines to print before them.
    pub(crate) notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    struct Fake {
        runs: Cell<bool>,
    }

    impl Service for Fake {
        fn name(&self) -> &str {
            "Fake"
        }

        fn variable(&self) -> &str {
            "LATCHWORK_TEST_FAKE_OF_XTASK"
        }

        fn up(&self) -> Result<String> {
            self.runs.set(true);
            Ok(String::from("fake://here"))
        }

        fn down(&self) -> Result<()> {
            self.runs.set(false);
            Ok(())
        }

        fn running(&self) -> Result<Option<String>> {
            Ok(self.runs.get().then(|| String::from("fake://here")))
        }
    }

    fn fake(runs: bool) -> Vec<Box<dyn Service>> {
        vec![Box::new(Fake { runs: Cell::new(runs) })]
    }

    #[test]
    fn tests_without_their_server_are_reported_as_skipped() {
        let found = for_tests(&fake(false)).unwrap();
        assert_eq!(found.notes[0], "skipped: Fake tests (LATCHWORK_TEST_FAKE_OF_XTASK is not set)");
        assert!(found.environment.is_empty());
    }

    #[test]
    fn tests_are_pointed_at_a_server_that_was_started() {
        let found = for_tests(&fake(true)).unwrap();
        let expected = (String::from("LATCHWORK_TEST_FAKE_OF_XTASK"), String::from("fake://here"));
        assert_eq!(found.environment, [expected]);
    }

    #[test]
    fn up_starts_and_down_stops() {
        let services = fake(false);
        let service = services[0].as_ref();
        let up = carry_out(&ServiceAction::Up, service).unwrap();
        assert_eq!(up, "runs, LATCHWORK_TEST_FAKE_OF_XTASK=fake://here");
        let status = carry_out(&ServiceAction::Status, service).unwrap();
        assert_eq!(status, up);
        carry_out(&ServiceAction::Down, service).unwrap();
        let status = carry_out(&ServiceAction::Status, service).unwrap();
        assert_eq!(status, "does not run, and LATCHWORK_TEST_FAKE_OF_XTASK is not set");
    }

    #[test]
    fn without_servers_every_action_succeeds() {
        for action in [ServiceAction::Up, ServiceAction::Down, ServiceAction::Status] {
            run(&action, &[]).unwrap();
        }
    }
}
