//! What can be done to the dumps of the sample Source.

use super::{MemberFault, SampleSource};
use crate::protocol::SourceTime;

impl SampleSource {
    /// Publishes a Resource Dump of this moment, which is what it returns. Its packages have the names of those before.
    pub fn refresh_resource_dump(&self, set: &str) -> SourceTime {
        let mut state = self.shared.state.lock();
        let at = state.boundary();
        state.set_mut(set).refresh_resource_dump(at);
        at
    }

    /// Adds the changes since the last package to the Change Dump: one package, that ends now, or more if the options have it
    /// so. How many packages were added.
    pub fn pack_changes(&self, set: &str) -> usize {
        let mut state = self.shared.state.lock();
        let until = state.boundary();
        state.set_mut(set).dumps_mut().pack_changes(until)
    }

    /// Drops the oldest packages of the Change Dump, but for `keep` of them; how many were dropped.
    pub fn drop_old_change_packages(&self, set: &str, keep: usize) -> usize {
        let mut state = self.shared.state.lock();
        state.set_mut(set).dumps_mut().drop_old_changes(keep)
    }

    /// Plans what is wrong with a resource's members in all packages that are made from now on; `None`: nothing is.
    pub fn spoil_member(&self, set: &str, name: &str, fault: Option<MemberFault>) {
        let mut state = self.shared.state.lock();
        let set = state.set_mut(set);
        let uri = set.resource_uri(name);
        set.dumps_mut().plan_fault(uri.as_str(), fault);
    }
}
