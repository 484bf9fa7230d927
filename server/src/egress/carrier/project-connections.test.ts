import { describe, expect, it } from 'vitest';
import type { Denial } from './denial.ts';
import { ProjectConnections, type Weighed } from './project-connections.ts';

interface Fake extends Weighed {
  holds: number;
  cutBy: Denial | undefined;
}

function fake(holds = 0): Fake {
  const one: Fake = {
    holds,
    cutBy: undefined,
    weigh: () => one.holds,
    cut: (denial) => (one.cutBy = denial),
  };
  return one;
}

function denialOf(work: () => void): Denial | undefined {
  try {
    work();
    return undefined;
  } catch (error) {
    return error as Denial;
  }
}

describe('the connections of a project', () => {
  it('are refused beyond their number, until one ends', () => {
    const project = new ProjectConnections({ connections: 2, bytes: null }, () => 0);
    const first = fake();
    project.open(first);
    project.open(fake());
    expect(denialOf(() => project.open(fake()))).toMatchObject({
      reason: 'limit',
      message: 'The project has 2 connections open, the most is 2',
    });
    expect(project).toMatchObject({ connections: 2, refused: 1 });
    project.close(first);
    project.open(fake());
  });

  it('are refused beyond their bytes, and what has left does not count', () => {
    let now = 0;
    const project = new ProjectConnections({ connections: null, bytes: 100 }, () => now);
    const [slow, fast] = [fake(), fake()];
    project.open(slow);
    project.open(fast);
    slow.holds = 60;
    project.add(slow, 60);
    // It carries much and keeps nothing.
    for (let index = 0; index < 10; index++, now += 100) project.add(fast, 30);
    expect(project.bytes).toBeLessThanOrEqual(100);
    fast.holds = 50;
    now += 100;
    expect(denialOf(() => project.add(fast, 50))?.reason).toBe('limit');
    project.close(slow);
    project.add(fast, 0);
    expect(project.bytes).toBe(50);
  });

  it('count what fills up without a word, and the largest goes first', () => {
    const project = new ProjectConnections({ connections: null, bytes: 100 }, () => 0);
    const all = [fake(10), fake(10), fake(10)];
    for (const one of all) project.open(one);
    all[1]!.holds = 90;
    project.tick();
    expect(all.map(({ cutBy }) => cutBy?.reason)).toEqual([undefined, 'limit', undefined]);
    expect(project).toMatchObject({ connections: 2, bytes: 20, refused: 1 });
  });

  it('have wide windows up to half of their bytes', () => {
    const project = new ProjectConnections({ connections: null, bytes: 4 * 1024 ** 2 }, () => 0);
    const all = [fake(), fake(), fake()];
    for (const one of all) project.open(one);
    expect(all.map((one) => project.mayWiden(one))).toEqual([true, true, false]);
    project.close(all[0]!);
    expect(project.mayWiden(all[2]!)).toBe(true);
  });
});
