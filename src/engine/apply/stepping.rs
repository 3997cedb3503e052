//! Executes and publishes one task at a time, for the simulation: the executor's loop decides what of that happens at once.

use std::sync::Arc;

use resyncd_mirror::Mirror;

use super::context::ApplyContext;
use super::execute::execute;
use super::members::Members;
use super::publisher::{ExecutedTask, publish};
use crate::engine::context::SourceContext;
use crate::store::{Task, TaskResult};

/// Whether members are on offer.
pub(crate) fn has_offers(members: &Members) -> bool {
    !members.offered.lock().is_empty()
}

/// Steps through the tasks of a Source.
pub(crate) struct Stepper(Arc<ApplyContext>);

/// A task that was executed, and is not published.
pub(crate) struct Executed(ExecutedTask);

impl Stepper {
    pub(crate) fn new(context: Arc<SourceContext>, mirror: Arc<Mirror>) -> Self {
        Self(Arc::new(ApplyContext::new(context, mirror, false)))
    }

    pub(crate) fn mirror(&self) -> &Mirror {
        &self.0.mirror
    }

    /// Executes a task, up to the point where the result becomes visible.
    pub(crate) async fn execute(&self, task: Task) -> Executed {
        let outcome = execute(&self.0, &task).await;
        Executed(ExecutedTask { task, outcome })
    }

    /// Changes the mirror.
    pub(crate) fn publish(&self, executed: Executed) -> Vec<TaskResult> {
        let deletes = self.0.source.source.delete;
        publish(&self.0.mirror, deletes, vec![executed.0])
    }
}
