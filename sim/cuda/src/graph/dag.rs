//! A graph as data: nodes, the nodes that each waits for, and an order to run them in.
//!
//! Edges may be added and removed freely. A cycle is noticed when an order is computed, as the driver notices it at
//! instantiation. The contents of a node are the caller's type `T`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::handles::NodeId;

/// An edge or node that is not there, is there already, or joins a node to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadEdge;

/// The nodes wait for each other in a circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycle;

/// A node of the graph.
#[derive(Clone, Debug)]
struct Node<T> {
    what: T,
    /// The nodes that it waits for, in the given order.
    after: Vec<NodeId>,
}

/// A graph. Nodes keep the order they were added in.
#[derive(Clone, Debug)]
pub struct Dag<T> {
    nodes: BTreeMap<NodeId, Node<T>>,
    order: Vec<NodeId>,
}

impl<T> Default for Dag<T> {
    fn default() -> Self {
        Self {
            nodes: BTreeMap::new(),
            order: Vec::new(),
        }
    }
}

impl<T> Dag<T> {
    /// Adds a node that waits for other nodes of this graph, each named once. This is stricter than the driver, which
    /// does not check that they are of this graph.
    pub fn add(&mut self, id: NodeId, what: T, after: &[NodeId]) -> Result<(), BadEdge> {
        let distinct: BTreeSet<_> = after.iter().collect();
        let known = after.iter().all(|node| self.nodes.contains_key(node));
        if !known || distinct.len() != after.len() || self.nodes.contains_key(&id) {
            return Err(BadEdge);
        }
        let after = after.to_vec();
        self.nodes.insert(id, Node { what, after });
        self.order.push(id);
        Ok(())
    }

    /// Removes a node with its edges.
    pub fn remove(&mut self, id: NodeId) -> Option<T> {
        let node = self.nodes.remove(&id)?;
        self.order.retain(|other| *other != id);
        for other in self.nodes.values_mut() {
            other.after.retain(|before| *before != id);
        }
        Some(node.what)
    }

    /// Returns the same graph with other names for its nodes, and other contents.
    pub fn renamed<U>(
        &self,
        name: impl Fn(NodeId) -> NodeId,
        mut content: impl FnMut(&T) -> U,
    ) -> Dag<U> {
        let rename = |ids: &[NodeId]| ids.iter().map(|id| name(*id)).collect::<Vec<_>>();
        let order = rename(&self.order);
        let nodes = self.nodes.iter().map(|(id, node)| {
            let what = content(&node.what);
            let after = rename(&node.after);
            (name(*id), Node { what, after })
        });
        Dag {
            nodes: nodes.collect(),
            order,
        }
    }

    /// Returns the contents of a node.
    pub fn get(&self, id: NodeId) -> Option<&T> {
        self.nodes.get(&id).map(|node| &node.what)
    }

    /// Returns the contents of a node, to be changed.
    pub fn get_mut(&mut self, id: NodeId) -> Option<&mut T> {
        self.nodes.get_mut(&id).map(|node| &mut node.what)
    }

    /// Returns the nodes, in the order in which they were added.
    pub fn nodes(&self) -> &[NodeId] {
        &self.order
    }

    /// Returns the nodes that wait for no other.
    pub fn roots(&self) -> Vec<NodeId> {
        let root = |id: &&NodeId| self.nodes[id].after.is_empty();
        self.order.iter().filter(root).copied().collect()
    }

    /// Returns the nodes that a node waits for.
    pub fn before(&self, id: NodeId) -> Option<&[NodeId]> {
        self.nodes.get(&id).map(|node| node.after.as_slice())
    }

    /// Returns the nodes that wait for a node.
    pub fn after(&self, id: NodeId) -> Option<Vec<NodeId>> {
        self.nodes.get(&id)?;
        let waits = |other: &&NodeId| self.nodes[other].after.contains(&id);
        Some(self.order.iter().filter(waits).copied().collect())
    }

    /// Returns all edges, from and to.
    pub fn edges(&self) -> Vec<(NodeId, NodeId)> {
        let of = |to: &NodeId| {
            let to = *to;
            self.nodes[&to].after.iter().map(move |from| (*from, to))
        };
        self.order.iter().flat_map(of).collect()
    }

    /// Adds edges, all or none.
    pub fn connect(&mut self, edges: &[(NodeId, NodeId)]) -> Result<(), BadEdge> {
        let mut new = BTreeSet::new();
        for (from, to) in edges {
            let there = self.nodes.contains_key(from) && self.nodes.contains_key(to);
            if !there || from == to || self.has(*from, *to) || !new.insert((from, to)) {
                return Err(BadEdge);
            }
        }
        for (from, to) in edges {
            if let Some(node) = self.nodes.get_mut(to) {
                node.after.push(*from);
            }
        }
        Ok(())
    }

    /// Removes edges, all or none.
    pub fn disconnect(&mut self, edges: &[(NodeId, NodeId)]) -> Result<(), BadEdge> {
        if !edges.iter().all(|(from, to)| self.has(*from, *to)) {
            return Err(BadEdge);
        }
        for (from, to) in edges {
            if let Some(node) = self.nodes.get_mut(to) {
                node.after.retain(|before| before != from);
            }
        }
        Ok(())
    }

    fn has(&self, from: NodeId, to: NodeId) -> bool {
        self.nodes.get(&to).is_some_and(|n| n.after.contains(&from))
    }

    /// Returns an order in which each node comes after all nodes that it waits for; of several ready nodes, the first
    /// added comes first.
    pub fn sorted(&self) -> Result<Vec<NodeId>, Cycle> {
        let mut missing: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut waiters: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
        let mut ready = VecDeque::new();
        for id in &self.order {
            let after = &self.nodes[id].after;
            for before in after {
                waiters.entry(*before).or_default().push(*id);
            }
            missing.insert(*id, after.len());
            if after.is_empty() {
                ready.push_back(*id);
            }
        }
        let mut sorted = Vec::with_capacity(self.order.len());
        while let Some(id) = ready.pop_front() {
            sorted.push(id);
            for waiter in waiters.remove(&id).unwrap_or_default() {
                let left = missing.get_mut(&waiter).expect("every node was counted");
                *left -= 1;
                if *left == 0 {
                    ready.push_back(waiter);
                }
            }
        }
        if sorted.len() == self.order.len() {
            Ok(sorted)
        } else {
            Err(Cycle)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diamond() -> Dag<char> {
        let mut dag = Dag::default();
        dag.add(1, 'a', &[]).unwrap();
        dag.add(2, 'b', &[1]).unwrap();
        dag.add(3, 'c', &[1]).unwrap();
        dag.add(4, 'd', &[3, 2]).unwrap();
        dag
    }

    #[test]
    fn each_node_comes_after_all_it_waits_for() {
        assert_eq!(diamond().sorted(), Ok(vec![1, 2, 3, 4]));
        assert_eq!(diamond().roots(), [1]);
        assert_eq!(diamond().after(1), Some(vec![2, 3]));
        assert_eq!(diamond().before(4), Some(&[3, 2][..]));
        assert_eq!(diamond().edges(), [(1, 2), (1, 3), (3, 4), (2, 4)]);
    }

    #[test]
    fn a_circle_has_no_order() {
        let mut dag = diamond();
        dag.connect(&[(4, 2)]).unwrap();
        assert_eq!(dag.sorted(), Err(Cycle));
        dag.disconnect(&[(4, 2)]).unwrap();
        assert!(dag.sorted().is_ok());
    }

    #[test]
    fn a_bad_edge_changes_nothing() {
        let mut dag = diamond();
        assert_eq!(
            dag.connect(&[(2, 3), (1, 2)]),
            Err(BadEdge),
            "there already"
        );
        assert_eq!(dag.connect(&[(2, 2)]), Err(BadEdge));
        assert_eq!(dag.connect(&[(2, 9)]), Err(BadEdge));
        assert_eq!(dag.connect(&[(2, 3), (2, 3)]), Err(BadEdge));
        assert_eq!(dag.disconnect(&[(1, 2), (2, 3)]), Err(BadEdge));
        assert_eq!(dag.edges().len(), 4);
        assert_eq!(dag.add(5, 'e', &[9]), Err(BadEdge));
        assert_eq!(dag.add(5, 'e', &[1, 1]), Err(BadEdge));
    }

    #[test]
    fn a_renamed_graph_has_the_same_shape() {
        let copy = diamond().renamed(|id| id * 10, char::to_ascii_uppercase);
        assert_eq!(copy.edges(), [(10, 20), (10, 30), (30, 40), (20, 40)]);
        assert_eq!(copy.nodes(), [10, 20, 30, 40]);
        assert_eq!(copy.get(30), Some(&'C'));
    }

    #[test]
    fn a_removed_node_takes_its_edges_along() {
        let mut dag = diamond();
        assert_eq!(dag.remove(2), Some('b'));
        assert_eq!(dag.remove(2), None);
        assert_eq!(dag.edges(), [(1, 3), (3, 4)]);
        assert_eq!(dag.nodes(), [1, 3, 4]);
    }
}
