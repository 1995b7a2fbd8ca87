package org.apache.spark.tidewise // Spark keeps its Python workers to its own packages

import java.io.File
import java.lang.management.ManagementFactory
import java.util.{Collections, Map => JavaMap}
import java.util.concurrent.atomic.AtomicInteger
import javax.management.ObjectName

import org.apache.spark.{SparkContext, SparkEnv}
import org.apache.spark.api.plugin.{DriverPlugin, ExecutorPlugin, PluginContext, SparkPlugin}

/** A new executor is warm before Spark gives it tasks: it loads and starts first what the tasks of others needed.
  *
  * Spark counts on an executor when its plugins are set up. Its first task would otherwise take seconds (a JVM without
  * classes, no Python), and its batch with it. Executors tell the driver what their tasks made them load, and which
  * Python workers they started; a new one asks for that. Whatever fails leaves a line in the executor's log, and the
  * executor is as cold as it would have been.
  */
class WarmUp extends SparkPlugin {
  override def driverPlugin(): DriverPlugin = new Recipes
  override def executorPlugin(): ExecutorPlugin = new WarmExecutor
}

/** Keeps the last recipe: names of classes, then one row per kind of Python worker. Strings only: they need no class
  * of ours to be read.
  */
private class Recipes extends DriverPlugin {
  @volatile private var last: Array[Array[String]] = Array(Array.empty)

  override def init(context: SparkContext, plugin: PluginContext): JavaMap[String, String] = Collections.emptyMap()

  override def receive(message: AnyRef): AnyRef = message match {
    case recipe: Array[Array[String]] =>
      last = recipe
      null
    case _ => last
  }
}

private class WarmExecutor extends ExecutorPlugin {
  private val withinMs = 20000L // a slow warm-up must not cost more than a cold start
  private val tellAfter = Set(20, 200, 2000) // tasks
  private val mostKindsOfPython = 4
  private val tasks = new AtomicInteger
  private var plugin: PluginContext = _
  private var ownClasses: Set[String] = Set.empty
  @volatile private var isLate = false

  override def init(context: PluginContext, extra: JavaMap[String, String]): Unit = {
    plugin = context
    orTell("cannot tell which classes tasks need") { ownClasses = loadedClasses() }
    // Not on this thread: whatever it waits for, the executor joins in time.
    val warming = inBackground(orTell("could not warm up") {
      val recipe = context.ask("what do tasks need?").asInstanceOf[Array[Array[String]]]
      if (SparkEnv.get.conf.getBoolean("spark.python.use.daemon", true)) recipe.tail.foreach(startPython)
      load(recipe.head)
    })
    warming.join(withinMs)
    isLate = true
  }

  override def onTaskSucceeded(): Unit =
    if (tellAfter(tasks.incrementAndGet())) {
      inBackground(orTell("could not tell what tasks need") {
        plugin.send((loadedClasses() -- ownClasses).toArray +: pythonWorkers())
      })
    }

  /** Spark's own classes are set up as well, which needs no task; what that does in others is for tasks to see. */
  private def load(names: Array[String]): Unit = {
    val loader = Thread.currentThread.getContextClassLoader
    val sparks = folderOf(classOf[SparkEnv])
    for (name <- names if !isLate)
      try {
        val found = Class.forName(name, false, loader)
        if (sparks.nonEmpty && folderOf(found) == sparks && (name.startsWith("org.apache.spark.") || name.startsWith("scala.")))
          Class.forName(name, true, loader)
        else found.getDeclaredConstructors // which has the JVM link it
      } catch { case _: ClassNotFoundException | _: LinkageError | _: RuntimeException => } // a task will tell why
  }

  private def folderOf(kind: Class[_]): Option[String] =
    for {
      source <- Option(kind.getProtectionDomain.getCodeSource)
      location <- Option(source.getLocation)
    } yield location.getPath.substring(0, location.getPath.lastIndexOf('/'))

  private def startPython(row: Array[String]): Unit = if (!isLate) orTell("could not start a Python worker") {
    val Array(program, worker, daemon) = row.take(3)
    val settings = row.drop(3).grouped(2).map(pair => pair(0) -> pair(1)).toMap
    val ours =
      if (settings.contains(WarmExecutor.folders)) settings.updated(WarmExecutor.folders, localFolders) else settings
    val env = SparkEnv.get
    env.releasePythonWorker(program, worker, daemon, ours, env.createPythonWorker(program, worker, daemon, ours)._1)
  }

  /** The kinds of Python workers that this executor has; a worker is taken again where all of this is equal. */
  private def pythonWorkers(): Array[Array[String]] = {
    val field = classOf[SparkEnv].getDeclaredField("pythonWorkers")
    field.setAccessible(true)
    val env = SparkEnv.get
    val kinds = env.synchronized {
      field.get(env).asInstanceOf[scala.collection.mutable.Map[Product, _]].keys.map(_.productIterator.toSeq).toArray
    }
    val rows = kinds.map { kind =>
      val Seq(program, worker, daemon, settings) = kind.take(4)
      val pairs = settings.asInstanceOf[collection.Map[String, String]].toSeq
      (Seq(program, worker, daemon).map(_.toString) ++ pairs.flatMap { case (name, value) => Seq(name, value) }).toArray
    }
    rows.filterNot(_.contains(WarmExecutor.faultFolder)).take(mostKindsOfPython)
  }

  private def localFolders: String =
    SparkEnv.get.blockManager.diskBlockManager.localDirs.map((folder: File) => folder.getPath).mkString(",")

  private def loadedClasses(): Set[String] = {
    val tree = ManagementFactory.getPlatformMBeanServer
      .invoke(
        new ObjectName("com.sun.management:type=DiagnosticCommand"),
        "vmClassHierarchy",
        Array[AnyRef](Array.empty[String]),
        Array(classOf[Array[String]].getName)
      )
      .toString
    // Lines are "|  |--package.Class/loader"; classes made at run time cannot be found by name.
    tree.linesIterator
      .map(line => line.substring(line.lastIndexOf('-') + 1).takeWhile(_ != '/').trim)
      .filter(name => name.nonEmpty && !name.contains(' ') && !name.contains("$$Lambda") && !name.contains("Generated"))
      .toSet
  }

  private def inBackground(work: => Unit): Thread = {
    val thread = new Thread((() => work): Runnable, "tidewise-warm-up")
    thread.setContextClassLoader(Thread.currentThread.getContextClassLoader)
    thread.setDaemon(true)
    thread.start()
    thread
  }

  private def orTell(problem: String)(work: => Unit): Unit =
    try work
    catch { case error: Throwable => System.err.println(s"tidewise: an executor $problem: $error") }
}

private object WarmExecutor {
  val folders = "SPARK_LOCAL_DIRS" // differs from executor to executor
  val faultFolder = "PYTHON_FAULTHANDLER_DIR" // the same, and nobody else can know it
}
