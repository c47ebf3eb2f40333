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

    /// Starts it unless it runs, and returns the value for its variable; `None` when this machine cannot run it.
    fn up(&self) -> Result<Option<String>>;

    /// Stops what [`Service::up`] started; one that does not run is no error.
    fn down(&self) -> Result<()>;

    /// The value for its variable when it runs, started by [`Service::up`].
    fn running(&self) -> Result<Option<String>>;
}

/// The servers of this version.
pub(crate) fn all() -> Vec<Box<dyn Service>> {
    vec![Box::new(SqlServer)]
}

/// Microsoft SQL Server, which is no package that could be installed here: the tests use one that is named, or the simulated one.
struct SqlServer;

impl Service for SqlServer {
    fn name(&self) -> &str {
        "SQL Server"
    }

    fn variable(&self) -> &str {
        "LATCHWORK_TEST_SQLSERVER"
    }

    fn up(&self) -> Result<Option<String>> {
        Ok(None)
    }

    fn down(&self) -> Result<()> {
        Ok(())
    }

    fn running(&self) -> Result<Option<String>> {
        Ok(None)
    }
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
    let variable = service.variable();
    if env::var_os(variable).is_some() {
        // Not its value, which may hold a password.
        return Ok(format!("{variable} names one"));
    }
    let value = match action {
        ServiceAction::Up => service.up()?,
        ServiceAction::Status => service.running()?,
        ServiceAction::Down => {
            service.down()?;
            None
        }
    };
    Ok(match value {
        Some(value) => format!("runs, {variable}={value}"),
        None => format!("does not run, and {variable} is not set"),
    })
}

/// The servers that one run of the tests uses.
pub(crate) struct TestServices<'a> {
    /// Variables to set for the tests.
    pub(crate) environment: Vec<(String, String)>,
    /// Lines to print before them: what is skipped, and why.
    pub(crate) notes: Vec<String>,
    started: Vec<&'a dyn Service>,
}

impl<'a> TestServices<'a> {
    /// Takes the servers that environment variables name, and starts the others where this machine can.
    pub(crate) fn up(services: &'a [Box<dyn Service>]) -> Result<Self> {
        let mut found = Self { environment: Vec::new(), notes: Vec::new(), started: Vec::new() };
        for service in services {
            let (name, variable) = (service.name(), service.variable());
            if env::var_os(variable).is_some() {
                continue;
            }
            let ran = service.running()?.is_some();
            match service.up()? {
                Some(value) => {
                    found.environment.push((variable.to_owned(), value));
                    if !ran {
                        found.started.push(service.as_ref());
                    }
                }
                None => found.notes.push(format!("skipped: {name} tests ({variable} is not set)")),
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

    /// Stops what [`TestServices::up`] started; what ran before goes on.
    pub(crate) fn down(&self) -> Result<()> {
        self.started.iter().try_for_each(|service| service.down())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    const VARIABLE: &str = "LATCHWORK_TEST_FAKE_OF_XTASK";

    struct Fake {
        runs: Rc<Cell<bool>>,
        installed: bool,
    }

    impl Service for Fake {
        fn name(&self) -> &str {
            "Fake"
        }

        fn variable(&self) -> &str {
            VARIABLE
        }

        fn up(&self) -> Result<Option<String>> {
            self.runs.set(self.installed);
            self.running()
        }

        fn down(&self) -> Result<()> {
            self.runs.set(false);
            Ok(())
        }

        fn running(&self) -> Result<Option<String>> {
            Ok(self.runs.get().then(|| String::from("fake://here")))
        }
    }

    fn fake(runs: bool, installed: bool) -> (Rc<Cell<bool>>, Vec<Box<dyn Service>>) {
        let runs = Rc::new(Cell::new(runs));
        (runs.clone(), vec![Box::new(Fake { runs, installed })])
    }

    #[test]
    fn tests_whose_server_cannot_be_had_are_reported_as_skipped() {
        let (_, services) = fake(false, false);
        let found = TestServices::up(&services).unwrap();
        assert_eq!(found.notes[0], "skipped: Fake tests (LATCHWORK_TEST_FAKE_OF_XTASK is not set)");
        assert!(found.environment.is_empty());
    }

    #[test]
    fn a_server_that_the_tests_started_is_stopped_after_them() {
        let (runs, services) = fake(false, true);
        let found = TestServices::up(&services).unwrap();
        assert_eq!(found.environment, [(String::from(VARIABLE), String::from("fake://here"))]);
        assert!(runs.get());
        found.down().unwrap();
        assert!(!runs.get());
    }

    #[test]
    fn a_server_that_ran_before_the_tests_goes_on() {
        let (runs, services) = fake(true, true);
        let found = TestServices::up(&services).unwrap();
        assert_eq!(found.environment.len(), 1);
        found.down().unwrap();
        assert!(runs.get());
    }

    #[test]
    fn up_starts_status_shows_and_down_stops() {
        let (_, services) = fake(false, true);
        let service = services[0].as_ref();
        let stopped = "does not run, and LATCHWORK_TEST_FAKE_OF_XTASK is not set";
        assert_eq!(carry_out(&ServiceAction::Status, service).unwrap(), stopped);
        let up = carry_out(&ServiceAction::Up, service).unwrap();
        assert_eq!(up, "runs, LATCHWORK_TEST_FAKE_OF_XTASK=fake://here");
        assert_eq!(carry_out(&ServiceAction::Status, service).unwrap(), up);
        assert_eq!(carry_out(&ServiceAction::Down, service).unwrap(), stopped);
    }

    #[test]
    fn without_servers_every_action_succeeds() {
        for action in [ServiceAction::Up, ServiceAction::Down, ServiceAction::Status] {
            run(&action, &[]).unwrap();
        }
    }
}
