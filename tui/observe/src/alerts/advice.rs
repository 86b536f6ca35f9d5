//! The alert for a policy that would serve the jobs better.

use super::Finding;
use crate::data::Data;
use crate::data::alert::Remedy;

pub(super) fn advice(data: &Data, found: &mut Vec<Finding>) {
    for gpu in data.sample.gpus() {
        if let Some(advice) = data.advice.of(gpu) {
            found.push(Finding {
                who: None,
                gpu: Some(gpu),
                sentence: format!(
                    "{} would serve the jobs of GPU{gpu} better; gpushare advise says why",
                    advice.policy
                ),
                remedy: Remedy::key('p', "set it"),
            });
        }
    }
}
