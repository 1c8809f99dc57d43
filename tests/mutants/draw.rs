//! Draws the list: a sample of what cargo-mutants finds, stratified by folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::list::{FOLDERS, List, Located, all};
use crate::plant::{check, plant, plantable, restore};

const MUTANTS: usize = 150;
/// Of each folder, however small it is.
const AT_LEAST: usize = 4;
const SEED: u64 = 150;

/// `SplitMix64`, so that the sample is the same with every version of every crate.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        usize::try_from(word % bound as u64).expect("less than the bound")
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// How many mutants each folder gives: in proportion, by largest remainders.
fn quotas(sizes: &[usize]) -> Vec<usize> {
    let (all, rest) = (
        sizes.iter().sum::<usize>(),
        MUTANTS - AT_LEAST * sizes.len(),
    );
    let mut quotas: Vec<_> = sizes
        .iter()
        .map(|size| AT_LEAST + size * rest / all)
        .collect();
    let mut order: Vec<_> = (0..sizes.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(sizes[index] * rest % all));
    for &index in order.iter().take(MUTANTS - quotas.iter().sum::<usize>()) {
        quotas[index] += 1;
    }
    quotas
}

pub(crate) fn draw(dir: &Path) -> List {
    restore(dir);
    let all = all(dir);
    let mut plantable = plantable(dir, &all);
    println!(
        "{} mutants, of which {} can be planted",
        all.len(),
        plantable.len()
    );
    Random(SEED).shuffle(&mut plantable);
    let mut folders: BTreeMap<&str, Vec<Located>> = BTreeMap::new();
    for located in plantable {
        folders
            .entry(located.mutant.folder())
            .or_default()
            .push(located);
    }
    let sizes = FOLDERS.map(|folder| folders[folder].len());
    let quotas = quotas(&sizes);
    println!("of {sizes:?} in {FOLDERS:?}: {quotas:?}");
    let mut refused = BTreeSet::new();
    let mut surplus = 0;
    loop {
        // More than are needed, because some do not compile.
        let mut sample = Vec::new();
        for (folder, quota) in FOLDERS.iter().zip(&quotas) {
            let fit = folders[folder]
                .iter()
                .filter(|located| !refused.contains(&located.mutant.number));
            sample.extend(fit.take(quota + quota / 2 + 2 + surplus).cloned());
        }
        let candidates: Vec<_> = sample.iter().map(|located| located.mutant.number).collect();
        for (index, located) in sample.iter_mut().enumerate() {
            located.mutant.number = index + 1;
        }
        restore(dir);
        plant(dir, &sample);
        let checked = check(dir, sample.len());
        if !checked.faults.is_empty() {
            refused.extend(checked.faults.iter().map(|number| candidates[number - 1]));
            continue;
        }
        // The compiler reports no use that a feature or a target leaves out.
        sample.retain(|located| {
            let compiled = checked.compiled.contains(&located.mutant.number);
            if !compiled {
                println!(
                    "not compiled: {}: {}",
                    located.mutant.file, located.mutant.change
                );
                refused.insert(candidates[located.mutant.number - 1]);
            }
            compiled
        });
        let mut mutants = Vec::new();
        for (folder, quota) in FOLDERS.iter().zip(&quotas) {
            let here = sample
                .iter()
                .filter(|located| located.mutant.folder() == *folder);
            let mut here: Vec<_> = here.take(*quota).cloned().collect();
            here.sort_by(|a, b| (&a.mutant.file, a.start).cmp(&(&b.mutant.file, b.start)));
            mutants.extend(here.into_iter().map(|located| located.mutant));
        }
        if mutants.len() == MUTANTS {
            for (index, mutant) in mutants.iter_mut().enumerate() {
                mutant.number = index + 1;
            }
            return List { mutants };
        }
        surplus += 2;
    }
}
