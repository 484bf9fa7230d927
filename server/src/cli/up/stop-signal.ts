/** Resolves with the signal that asks this process to end. */
export function stopSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      process.on(signal, (name: NodeJS.Signals) => resolve(name));
    }
    // A terminal that is closed stops the server, in order.
    process.on('SIGHUP', (name: NodeJS.Signals) => resolve(name));
  });
}
